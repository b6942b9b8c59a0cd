const e = <div>hello</div>;
