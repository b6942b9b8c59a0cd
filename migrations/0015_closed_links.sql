-- A link to a project's registry ends with the project.

create trigger project_is_open before insert on registry_links
    for each row execute function project_is_open();
