return <>text</>;
