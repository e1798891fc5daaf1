package fakedb

import "strings"

// statement parses one statement.
//
//nolint:cyclop // a parser's switch: a case for each statement
func (p *parser) statement() statement {
	t := p.next()
	switch strings.ToLower(t) {
	case "create":
		return p.createTable()
	case "drop":
		p.expect("table")
		return statement{verb: "drop", name: p.identifier()}
	case "insert":
		return p.insert()
	case "update":
		s := statement{verb: "update", name: p.identifier()}
		p.expect("set")
		s.items = p.assignments(",")
		s.where = p.where()
		return s
	case "delete":
		p.expect("from")
		s := statement{verb: "delete", name: p.identifier()}
		s.where = p.where()
		return s
	case "select":
		return p.selection()
	case "begin":
		return statement{verb: "begin"}
	case "start":
		p.expect("transaction")
		return statement{verb: "begin"}
	case "commit", "ping":
		return statement{verb: verb(strings.ToLower(t))}
	case "rollback":
		if p.accept("to") {
			p.accept("savepoint")
			return statement{verb: "rollback to", name: p.identifier()}
		}
		return statement{verb: "rollback"}
	case "savepoint":
		return statement{verb: "savepoint", name: p.identifier()}
	case "release":
		p.accept("savepoint")
		return statement{verb: "release", name: p.identifier()}
	case "set":
		s := statement{verb: "set", name: p.identifier()}
		p.expect("=")
		s.value = p.expr()
		return s
	case "show":
		return statement{verb: "show", name: p.identifier()}
	case "call":
		s := statement{verb: "call", name: p.identifier()}
		p.expect("(")
		s.value = p.expr()
		p.expect(")")
		return s
	}
	p.fail(t)
	panic("unreachable")
}

func (p *parser) createTable() statement {
	s := statement{verb: "create"}
	s.temp = p.accept("temp") || p.accept("temporary")
	p.expect("table")
	s.name = p.identifier()
	p.expect("(")
	for {
		s.columns = append(s.columns, p.column())
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return s
}

func (p *parser) column() column {
	c := column{name: p.identifier(), length: -1, precision: -1}
	c.typeName = strings.ToUpper(p.identifier())
	if _, ok := scanTypes[c.typeName]; !ok {
		p.fail(c.typeName)
	}
	if p.accept("(") {
		c.length = p.number()
		if p.accept(",") {
			c.precision, c.scale = c.length, p.number()
			c.length = -1
		}
		p.expect(")")
	}
	if p.accept("not") {
		p.expect("null")
		c.notNull = true
	}
	return c
}

func (p *parser) insert() statement {
	p.expect("into")
	s := statement{verb: "insert", name: p.identifier()}
	p.expect("values")
	for {
		p.expect("(")
		var row []expr
		for {
			row = append(row, p.expr())
			if !p.accept(",") {
				break
			}
		}
		p.expect(")")
		s.rows = append(s.rows, row)
		if !p.accept(",") {
			return s
		}
	}
}

func (p *parser) assignments(separator string) []item {
	var items []item
	for {
		name := p.identifier()
		p.expect("=")
		items = append(items, item{name, p.expr()})
		if !p.accept(separator) {
			return items
		}
	}
}

func (p *parser) where() []item {
	if !p.accept("where") {
		return nil
	}
	return p.assignments("and")
}

func (p *parser) selection() statement {
	s := statement{verb: "select"}
	for {
		it := item{expr: p.expr()}
		switch it.expr.kind {
		case columnExpr, namedArgExpr:
			it.name = it.expr.name
		case countExpr:
			it.name = "count"
		case literalExpr, argExpr, starExpr:
			it.name = "value"
		}
		if p.accept("as") {
			it.name = p.identifier()
		}
		s.items = append(s.items, it)
		if !p.accept(",") {
			break
		}
	}
	if p.accept("from") {
		s.name = p.identifier()
		s.where = p.where()
		if p.accept("limit") {
			e := p.expr()
			s.limit = &e
		}
	}
	return s
}
