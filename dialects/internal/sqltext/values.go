package sqltext

// Values are literals, numbers, placeholders, NULL and the like. Alone between commas they have no effect in any
// language, so that Scan needs no tokens of them. An INSERT of many rows, which is classified at each execution,
// costs one or two nanoseconds a byte.

// skipValues goes past values, and past lists of values in parentheses, that follow the comma at i and end with a
// comma themselves.
func (s *Statement) skipValues(i int) {
	if s.read == i+1 { // nobody has read the tokens behind the comma
		s.pos = s.lexer.pastValues()
	}
}

// pastValues is the place behind the last comma of the values that begin at x.pos. If a list does not end as it should,
// its values are read once more, as tokens: the time is linear.
func (x *lexer) pastValues() (past int) {
	past = x.pos
	inList := false
	for pos := past; ; {
		pos = x.skip(pos, space)
		if x.peek(pos) == '(' && !inList {
			inList = true
			pos = x.skip(pos+1, space)
		}
		if is(x.peek(pos), digit|point|dollar|mark) { // 1, -1.5, ?, $1
			pos = x.skip(pos+1, digit|point)
		} else if pos = x.value(pos); pos < 0 {
			return past
		}
		if pos = x.skip(pos, space); x.peek(pos) == ')' && inList {
			inList = false
			pos = x.skip(pos+1, space)
		}
		if x.peek(pos) != ',' {
			return past
		}
		if pos++; !inList {
			past = pos
		}
	}
}

// value returns the place behind the literal or the constant at pos; -1: there is none.
func (x *lexer) value(pos int) int {
	end := x.skip(pos, wordByte)
	word, c := x.src[pos:end], x.peek(end)
	switch {
	case c == '"' && word == "":
	case c == '\'' && (word == "" || Equal(word, "e") || Equal(word, "x") || Equal(word, "b") || Equal(word, "n") || Equal(word, "_binary")):
		x.last = Token{Kind: Word, From: pos, To: end}
	case Equal(word, "null"), Equal(word, "true"), Equal(word, "false"), Equal(word, "default"):
		return end
	default:
		return -1
	}
	x.pos = end + 1
	x.quote(c)
	return x.pos
}
