async function main() {}
(function () { return 1; })
