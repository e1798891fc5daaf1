package fakedb

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// SyntaxError is the error of a text that is not of the language.
type SyntaxError struct {
	Text string // the whole text
	Near string // where the parser stopped
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("fakedb: syntax error near %q", e.Near)
}

type verb string

// statement is one parsed statement; which fields count depends on its verb.
type statement struct {
	verb    verb
	name    string   // table, variable, savepoint
	temp    bool     // CREATE TEMP TABLE
	columns []column // CREATE TABLE
	rows    [][]expr // INSERT
	items   []item   // SELECT, UPDATE SET
	where   []item   // column = value, joined by AND
	limit   *expr
	value   expr // SET
	hints   []hint
}

// item is an expression with a name: a result column, or an assignment.
type item struct {
	name string
	expr expr
}

// expr is a literal, an argument, a column, or one of count(*) and *.
type expr struct {
	kind  exprKind
	value any    // literal
	name  string // column, named argument
	index int    // positional argument, from 1
}

type exprKind uint8

const (
	literalExpr exprKind = iota
	argExpr
	namedArgExpr
	columnExpr
	starExpr
	countExpr
)

type hint struct {
	word  string
	text  string
	count int
	wait  time.Duration
}

// parsed is a text ready to be executed.
type parsed struct {
	text       string
	statements []statement
	inputs     int
}

type parser struct {
	text   string
	tokens []string
	inputs int
	named  map[string]bool
	hints  []hint
}

func parse(text string) (p *parsed, err error) {
	ps := &parser{text: text, named: map[string]bool{}}
	defer func() {
		if r := recover(); r != nil {
			syntax, ok := r.(*SyntaxError)
			if !ok {
				panic(r)
			}
			p, err = nil, syntax
		}
	}()
	ps.tokens = ps.split(text)
	p = &parsed{text: text}
	for len(ps.tokens) > 0 {
		if ps.accept(";") {
			continue
		}
		s := ps.statement()
		s.hints, ps.hints = slices.Clone(ps.hints), ps.hints[:0]
		p.statements = append(p.statements, s)
		if len(ps.tokens) > 0 {
			ps.expect(";")
		}
	}
	if len(p.statements) == 0 {
		ps.fail("end of text")
	}
	p.inputs = ps.inputs + len(ps.named)
	return p, nil
}

func (p *parser) fail(near string) { panic(&SyntaxError{Text: p.text, Near: near}) }

// split cuts the text into tokens. Comments vanish, hints become tokens that
// start with "/*+".
//
//nolint:cyclop // a lexer's switch: a case for each token
func (p *parser) split(text string) []string {
	var tokens []string
	word := func(r rune) bool { return r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			i += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest, "*/")
			if end < 0 {
				p.fail("unterminated comment")
			}
			if strings.HasPrefix(rest, "/*+") {
				tokens = append(tokens, rest[:end])
			}
			i += end + 2
		case c == '\'':
			n := quotedLength(rest)
			if n < 0 {
				p.fail("unterminated string")
			}
			tokens = append(tokens, rest[:n])
			i += n
		case (c == 'x' || c == 'X') && len(rest) > 1 && rest[1] == '\'':
			n := quotedLength(rest[1:])
			if n < 0 {
				p.fail("unterminated blob")
			}
			tokens = append(tokens, rest[:n+1])
			i += n + 1
		case c == ':' || c == '-' || word(rune(c)):
			n := 1
			for n < len(rest) && word(rune(rest[n])) {
				n++
			}
			tokens = append(tokens, rest[:n])
			i += n
		default:
			tokens = append(tokens, rest[:1])
			i++
		}
	}
	return tokens
}

// quotedLength returns the length of the quoted string that s starts with, in
// which a doubled quote is a quote, or -1 if it does not end.
func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != '\'' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '\'' {
			i++
			continue
		}
		return i + 1
	}
	return -1
}

func unquote(s string) string {
	return strings.ReplaceAll(s[1:len(s)-1], "''", "'")
}

// skipHints moves hints that come next out of the way.
func (p *parser) skipHints() {
	for len(p.tokens) > 0 && strings.HasPrefix(p.tokens[0], "/*+") {
		p.hints = append(p.hints, p.hint(p.tokens[0][3:]))
		p.tokens = p.tokens[1:]
	}
}

func (p *parser) hint(text string) hint {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	h := hint{word: strings.ToLower(word), text: strings.TrimSpace(rest)}
	var err error
	switch h.word {
	case "sleep":
		h.wait, err = time.ParseDuration(h.text)
	case "break", "breakconn":
		count, message, _ := strings.Cut(h.text, " ")
		h.count, err = strconv.Atoi(count)
		h.text = message
	case "error", "panic", "badconn":
	default:
		p.fail(text)
	}
	if err != nil {
		p.fail(text)
	}
	if len(h.text) >= 2 && h.text[0] == '\'' {
		h.text = unquote(h.text)
	}
	return h
}

func (p *parser) peek() string {
	p.skipHints()
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t == "" {
		p.fail("end of text")
	}
	p.tokens = p.tokens[1:]
	p.skipHints()
	return t
}

func (p *parser) accept(word string) bool {
	if !strings.EqualFold(p.peek(), word) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(word string) {
	if t := p.peek(); !strings.EqualFold(t, word) {
		if t == "" {
			t = "end of text"
		}
		p.fail(t)
	}
	p.next()
}

func (p *parser) identifier() string {
	t := p.next()
	if !unicode.IsLetter(rune(t[0])) && t[0] != '_' {
		p.fail(t)
	}
	return strings.ToLower(t)
}

func (p *parser) number() int64 {
	t := p.next()
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		p.fail(t)
	}
	return n
}

//nolint:cyclop // a parser's switch: a case for each expression
func (p *parser) expr() expr {
	t := p.next()
	switch {
	case t == "?":
		p.inputs++
		return expr{kind: argExpr, index: p.inputs}
	case t[0] == ':' && len(t) > 1:
		p.named[t[1:]] = true
		return expr{kind: namedArgExpr, name: t[1:]}
	case t == "*":
		return expr{kind: starExpr}
	case t[0] == '\'':
		return expr{value: unquote(t)}
	case len(t) > 1 && (t[0] == 'x' || t[0] == 'X') && t[1] == '\'':
		b, err := hex.DecodeString(unquote(t[1:]))
		if err != nil {
			p.fail(t)
		}
		return expr{value: b}
	case strings.EqualFold(t, "null"):
		return expr{}
	case strings.EqualFold(t, "true"), strings.EqualFold(t, "false"):
		return expr{value: strings.EqualFold(t, "true")}
	case strings.EqualFold(t, "timestamp"):
		at, err := time.Parse(time.RFC3339Nano, unquote(p.next()))
		if err != nil {
			p.fail(t)
		}
		return expr{value: at}
	case strings.EqualFold(t, "count"):
		p.expect("(")
		p.expect("*")
		p.expect(")")
		return expr{kind: countExpr}
	case strings.EqualFold(t, "cursor"):
		p.expect("(")
		n := p.number()
		p.expect(")")
		return expr{value: cursor(n)}
	case unicode.IsDigit(rune(t[0])) || t[0] == '-':
		if n, err := strconv.ParseInt(t, 10, 64); err == nil {
			return expr{value: n}
		}
		f, err := strconv.ParseFloat(t, 64)
		if err != nil {
			p.fail(t)
		}
		return expr{value: f}
	case unicode.IsLetter(rune(t[0])) || t[0] == '_':
		return expr{kind: columnExpr, name: strings.ToLower(t)}
	}
	p.fail(t)
	panic("unreachable")
}
