const s = mсp;
