package sqltext

import "strings"

// quoted returns the end of the quoted text that opens at open, and whether the text is closed at
// all. A doubled quote stands for one quote. differs reports whether the end would be another if
// backslashes were read the other way.
func quoted(src string, open int, quote byte, escapes bool) (end int, closed, differs bool) {
	pos := open + 1
	for {
		n := strings.IndexByte(src[pos:], quote)
		if n < 0 {
			return len(src), false, differs
		}
		pos += n
		if src[pos-1] == '\\' && pos-1 > open {
			run := 1
			for pos-1-run > open && src[pos-1-run] == '\\' {
				run++
			}
			if run%2 == 1 {
				differs = true
				if escapes {
					pos++
					continue
				}
			}
		}
		if pos+1 < len(src) && src[pos+1] == quote {
			pos += 2
			continue
		}
		return pos + 1, true, differs
	}
}

// continued returns the opening of the string that continues the string before pos. White space
// with a newline in it, and comments, separate the two (PostgreSQL's manual, 4.1.2.1).
func continued(src string, pos int) (open int, ok bool) {
	newline := false
	for ; pos < len(src); pos++ {
		switch c := src[pos]; {
		case c == '\n', c == '\r':
			newline = true
		case c == ' ', c >= '\t' && c <= '\f':
		case c == '-' && at(src, pos+1) == '-':
			pos = lineComment(src, pos, true) - 1
			newline = true
		default:
			return pos, newline && c == '\''
		}
	}
	return 0, false
}

// escapedOn returns the end of the last string that continues the string before pos, and whether
// that last string is closed. All these strings have backslash escapes.
func escapedOn(src string, pos int, isClosed bool) (end int, closed bool) {
	next, ok := continued(src, pos)
	for end, closed = pos, isClosed; ok; next, ok = continued(src, end) {
		end, closed, _ = quoted(src, next, '\'', true)
	}
	return end, closed
}

// dollarQuoted returns the end of the dollar-quoted string that opens at open. ok is false if no
// string opens there, such as at the $ of $1.
func dollarQuoted(src string, open int) (end int, closed, ok bool) {
	i := open + 1
	for i < len(src) && src[i] != '$' {
		if !wordByte[src[i]] || i == open+1 && src[i] >= '0' && src[i] <= '9' {
			return 0, false, false
		}
		i++
	}
	if i == len(src) {
		return 0, false, false
	}
	tag := src[open : i+1]
	n := strings.Index(src[i+1:], tag)
	if n < 0 {
		return len(src), false, true
	}
	return i + 1 + n + len(tag), true, true
}

// blockComment returns the end of the comment that opens at open. inner reports whether the comment
// holds another opening.
func blockComment(src string, open int, nested bool) (end int, closed, inner bool) {
	depth := 1
	for pos := open + 2; pos+1 < len(src); pos++ {
		switch {
		case src[pos] == '*' && src[pos+1] == '/':
			pos++
			if depth--; depth == 0 {
				return pos + 1, true, inner
			}
		case src[pos] == '/' && src[pos+1] == '*':
			inner = true
			if nested {
				pos++
				depth++
			}
		}
	}
	return len(src), false, inner
}

// lineComment returns the end of the comment that begins before pos.
func lineComment(src string, pos int, returnEnds bool) int {
	for ; pos < len(src); pos++ {
		if src[pos] == '\n' || returnEnds && src[pos] == '\r' {
			return pos + 1
		}
	}
	return pos
}

// certainVersion is the version below which every server that the project
// supports executes a versioned comment. MariaDB skips comments of MySQL 5.7 and up, and each
// server skips comments of versions newer than itself.
const certainVersion = 50700

// versionedComment looks at the comment that opens at open. code: where the code in it begins; 0:
// it is an ordinary comment. version: a different number, not 0, for each kind and version.
// certain: every server executes the comment.
func versionedComment(src string, open int) (code int, version uint32, certain bool) {
	rest := src[open+2:]
	certain = true
	pos := open + 3
	switch {
	case strings.HasPrefix(rest, "!"):
	case strings.HasPrefix(rest, "M!"):
		pos++
		certain = false
	default:
		return 0, 0, false
	}
	kind := uint32(pos-open) << 20 // versions are below a million, and so below 1<<20
	digits := 0
	for digits < 6 && pos+digits < len(src) && src[pos+digits] >= '0' && src[pos+digits] <= '9' {
		version = version*10 + uint32(src[pos+digits]-'0')
		digits++
	}
	if digits < 5 {
		return pos, kind, certain && digits == 0
	}
	return pos + digits, kind | version, certain && version < certainVersion
}
