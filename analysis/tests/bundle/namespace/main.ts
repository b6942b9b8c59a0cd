import * as tools from "./tools.ts";
import { lib, renamed } from "./hub.ts";
type Path = tools.Path;
const path: Path = args.path;
const text = await tools.read(path);
return [tools.NAME, text, lib.deep({ name: lib.deep.name }), renamed?.(1), new lib.Box<number>(2).value];
