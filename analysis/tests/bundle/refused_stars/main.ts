import { twice } from "./hub.ts";
return twice;
