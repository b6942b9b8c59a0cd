return "\\033[1m".length + "\033[1m".length;
