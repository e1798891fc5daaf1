package main

import (
	"io"
	"strings"
)

// move is what a key does to the screen: so many lines down, and so many pages. Below 0: up.
type move struct{ lines, pages int }

// farthest is more pages than there are.
const farthest = 1 << 20

// moves are the keys that move the screen, as terminals send them.
var moves = map[string]move{
	"k": {lines: -1}, "\x1b[A": {lines: -1}, "\x1bOA": {lines: -1},
	"j": {lines: 1}, "\x1b[B": {lines: 1}, "\x1bOB": {lines: 1},
	"\x1b[5~": {pages: -1}, "\x1b[6~": {pages: 1}, " ": {pages: 1},
	"g": {pages: -farthest}, "\x1b[H": {pages: -farthest}, "\x1b[1~": {pages: -farthest},
	"G": {pages: farthest}, "\x1b[F": {pages: farthest}, "\x1b[4~": {pages: farthest},
}

// from is the first line of a screen of this height, after the move.
func (m move) from(line, height int) int { return max(0, line+m.lines+m.pages*(height-1)) }

// readKeys calls moved for each key that moves the screen, and stop when somebody types q or Ctrl-C, or the keys end.
func readKeys(keys io.Reader, moved func(move), stop func()) {
	defer stop()
	typed, buffer := "", make([]byte, 64)
	for {
		n, err := keys.Read(buffer)
		if err != nil {
			return
		}
		typed += string(buffer[:n])
		for typed != "" {
			key := keyOf(typed)
			switch {
			case key == "" && typed[0] == escape && begins(typed):
			case key == "q" || key == interrupt:
				return
			default:
				if m, ok := moves[key]; ok {
					moved(m)
				}
				typed = typed[max(1, len(key)):]
				continue
			}
			break // the rest of the key is still to come
		}
	}
}

const (
	interrupt = "\x03" // Ctrl-C
	escape    = '\x1b'
)

// keyOf is the key with which typed begins; empty: none that is known.
func keyOf(typed string) string {
	if typed[0] != escape {
		return typed[:1]
	}
	for key := range moves {
		if strings.HasPrefix(typed, key) {
			return key
		}
	}
	return ""
}

// begins reports whether typed may become a key.
func begins(typed string) bool {
	for key := range moves {
		if strings.HasPrefix(key, typed) {
			return true
		}
	}
	return false
}
