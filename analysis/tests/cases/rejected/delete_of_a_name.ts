const a = 1;
delete a;
