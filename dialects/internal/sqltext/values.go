package sqltext

// skipValues goes past the values behind the comma at i, if a comma follows them: literals, numbers, placeholders
// and lists of them in parentheses. They mean nothing in any language, and get no tokens. So an INSERT of many
// rows costs about a nanosecond a byte.
func (s *Statement) skipValues(i int) {
	if s.read == i+1 { // nobody has read the tokens behind the comma
		s.lexer.skipValues()
	}
}

// skipValues leaves the lexer behind the last comma that ends a value, outside of the parentheses that open here. It
// reads the values in front of the next token only once more.
func (x *lexer) skipValues() {
	behind, inside := x.pos, false
	for {
		c := x.space()
		switch {
		case c == '(' && !inside:
			inside = true
			x.pos++
			continue
		case !x.value(c):
			x.pos = behind
			return
		}
		if c = x.space(); c == ')' && inside {
			inside = false
			x.pos++
			c = x.space()
		}
		if c != ',' {
			x.pos = behind
			return
		}
		x.pos++
		if !inside {
			behind = x.pos
		}
	}
}

// space goes past white space and returns the byte behind it, or 0.
func (x *lexer) space() byte {
	x.pos = x.skip(x.pos, space)
	return x.at(0)
}

// value goes past a value that begins with c.
func (x *lexer) value(c byte) bool {
	switch c {
	case '\'', '"':
		x.pos++
		x.quote(c)
	case '?':
		x.pos++
	case '$':
		x.pos++
		return x.digits()
	case '-', '+':
		x.pos++
		return x.number()
	case 'n', 'N', 't', 'T', 'f', 'F', 'd', 'D':
		return x.constant("null") || x.constant("true") || x.constant("false") || x.constant("default")
	default:
		return x.number()
	}
	return true
}

// number goes past a number: 1, 1.5, 1e10.
func (x *lexer) number() bool {
	if !x.digits() {
		return false
	}
	if x.at(0) == '.' {
		x.pos++
		x.digits()
	}
	if x.at(0)|0x20 != 'e' {
		return true
	}
	x.pos++
	if c := x.at(0); c == '-' || c == '+' {
		x.pos++
	}
	return x.digits()
}

func (x *lexer) digits() bool {
	from := x.pos
	x.pos = x.skip(x.pos, digit)
	return x.pos > from
}

// constant goes past a keyword that is a value, if a value ends there.
func (x *lexer) constant(word string) bool {
	rest := x.src[x.pos:]
	if !HasPrefix(rest, word) || len(rest) > len(word) && is(rest[len(word)], wordByte) {
		return false
	}
	x.pos += len(word)
	return true
}
