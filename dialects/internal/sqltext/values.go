package sqltext

// skipValues goes past the values behind the comma at i, if a comma follows them. Values are literals, numbers,
// placeholders, NULL, and lists of these in parentheses. Between commas they have no effect in any language, and get no
// tokens: an INSERT of many rows, which is classified at each execution, costs 1 to 2 ns a byte.
func (s *Statement) skipValues(i int) {
	if s.read == i+1 { // no token behind the comma has been read
		s.pos = s.lexer.pastValues()
	}
}

// pastValues is the place behind the last comma of the values that begin at x.pos. If something else stands in a list, the
// list is read once more, as tokens: the time stays linear, because a list in a list is no value.
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

// value returns the place behind the literal or the constant at pos. -1: there is none.
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
