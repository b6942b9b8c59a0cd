type Tree = { left: Tree; right: Tree; middle: Tree; name: string };
const { tree }: { tree: Tree } = args;
return tree;
