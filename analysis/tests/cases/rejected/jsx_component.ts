const page = <Page title={await mcp.a.b({})} />;
return page;
