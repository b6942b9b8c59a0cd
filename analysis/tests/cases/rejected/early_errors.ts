break;
