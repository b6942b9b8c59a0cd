interface Entity {
  name: string;
  entityType: string;
  observations: string[];
}
interface Person {
  name: string;
  role: string;
  team: string;
}

const raw: string = await mcp.filesystem.read_text_file({ path: args.path ?? "team.json" });
const data = JSON.parse(raw) as { people: Person[]; teams: string[] };

const graph = await mcp.memory.read_graph({});
const known = new Set<string>(graph.entities.map((entity: Entity) => entity.name));

const wanted: Entity[] = [
  ...data.teams.map((name) => ({ name, entityType: "team", observations: [] as string[] })),
  ...data.people.map(({ name, role }) => ({ name, entityType: "person", observations: [`role: ${role}`] })),
];

const fresh = wanted.filter((entity) => !known.has(entity.name));
if (fresh.length > 0) {
  await mcp.memory.create_entities({ entities: fresh });
}

const existing = wanted.filter((entity) => known.has(entity.name) && entity.observations.length > 0);
for (const { name, observations } of existing) {
  await mcp.memory.add_observations({ observations: [{ entityName: name, contents: observations }] });
}

const relations = data.people.map(({ name, team }) => ({ from: name, to: team, relationType: "member_of" }));
await mcp.memory.create_relations({ relations });

const check = await mcp.memory.open_nodes({ names: data.teams });
const absent = data.teams.filter((team) => !check.entities.some((entity: Entity) => entity.name === team));
if (absent.length > 0) throw new Error(`teams without a node: ${absent.join(", ")}`);

return { created: fresh.length, updated: existing.length, relations: relations.length };
