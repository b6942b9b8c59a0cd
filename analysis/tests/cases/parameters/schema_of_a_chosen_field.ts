let sum = 0;
for (const key of ["a", "b"]) sum += args[key];
return sum;
