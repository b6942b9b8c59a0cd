-- A server of the catalog that the operator runs on the gateway.

-- The release ships `stdio` servers with the routing `client`. The operator who has installed one on the gateway routes it
-- to the gateway, and the next seed must not undo that.
alter table mcp_servers add column routing_is_operators boolean not null default false;
comment on column mcp_servers.routing_is_operators is 'The operator set `routing`, and no seed changes it';
