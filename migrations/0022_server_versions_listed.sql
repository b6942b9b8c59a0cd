-- The official API lists every version of a published server, each with the time of its last change.

alter table server_versions add column changed_at timestamptz;
comment on column server_versions.changed_at is 'When the version was last deprecated, restored or yanked; null if never since it was published';
grant update (changed_at) on server_versions to pml_app;

create index server_versions_order on server_versions
    (org collate "C", project collate "C", namespace collate "C", version collate "C");
