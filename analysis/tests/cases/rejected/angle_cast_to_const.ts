const names = <const>["read", "write"];
