const ready = true;
if (ready) return;
