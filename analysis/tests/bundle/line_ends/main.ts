import { a } from "./a.ts"
const first = a
import "./b.ts"
;[first].forEach(console.log)
import { c } from "./c.ts"
;(c)
