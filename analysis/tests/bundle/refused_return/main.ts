import "./early.ts";
return 1;
