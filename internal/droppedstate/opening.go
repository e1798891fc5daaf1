package droppedstate

import "strings"

// Opening is the first words of a statement, up to the first word that may be a value.
// The text after it may be a secret, as in SET PASSWORD = ….
func Opening(query string) string {
	const words, size = 4, 60
	rest, end := skipComments(query), 0
	for range words {
		start := end
		for start < len(rest) && isSpace(rest[start]) {
			start++
		}
		stop := start
		for stop < len(rest) && isWordByte(rest[stop], stop == start) {
			stop++
		}
		if word := rest[start:stop]; word == "" || strings.EqualFold(word, "to") || stop > size {
			break
		}
		end = stop
	}
	if end == 0 {
		return "(not shown)"
	}
	return strings.Join(strings.Fields(rest[:end]), " ") + " …"
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func isWordByte(b byte, first bool) bool {
	letter := b|0x20 >= 'a' && b|0x20 <= 'z' || b == '_' || b == '@'
	return letter || !first && (b >= '0' && b <= '9' || b == '.' || b == '$')
}

// skipComments removes what a tool may put before a statement: comments, spaces,
// semicolons and opening parentheses.
func skipComments(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\r\n;(")
		end := ""
		switch {
		case strings.HasPrefix(query, "--"), strings.HasPrefix(query, "#"):
			end = "\n"
		case strings.HasPrefix(query, "/*"):
			end = "*/"
		default:
			return query
		}
		_, after, found := strings.Cut(query, end)
		if !found {
			return ""
		}
		query = after
	}
}
