-- A short name is looked up in all projects of an organisation. The primary keys begin with the project, so without
-- these indexes each look-up would read all servers of the organisation.

create index mcp_servers_namespace on mcp_servers (namespace, org);
create index server_versions_namespace on server_versions (namespace, org);
