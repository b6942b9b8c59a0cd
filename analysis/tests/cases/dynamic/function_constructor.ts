new Function("return 1")();
(async () => {}).constructor("return 1")();
const { constructor: make } = () => {};
make("return 1")();
