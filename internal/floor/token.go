package floor

import (
	"encoding/base64"
	"slices"
	"strings"
)

// MaxToken is the longest token, in bytes. It fits into a cookie.
const MaxToken = 3000

// maxKept is how many positions of tokens are kept. With more of them only the primary is new enough.
const maxKept = 16

const (
	version   = "1."
	separator = ";" // of positions, which do not contain it
	unknown   = "?" // a write whose position is not known
)

// token is the floors as text: what came in tokens, and was not overtaken since, and what was written.
func (all *Floors) token() string {
	all.mu.Lock()
	defer all.mu.Unlock()
	positions := slices.Clone(all.tokens)
	if all.askPrimary && len(all.own) == 0 {
		positions = append(positions, unknown)
	}
	for _, f := range all.own {
		position, primaryOnly := f.position, f.nowLocked().PrimaryOnly
		if position == "" && !primaryOnly {
			continue
		}
		// What f has not replayed made it unknown, until the primary was asked: then another history is over, and a client
		// that comes with its position for ever would read from the primary for ever.
		positions = slices.DeleteFunc(positions, func(old string) bool {
			return old == unknown || f.positions.SameDatabase(old, position)
		})
		if primaryOnly {
			position = unknown
		}
		positions = append(positions, position)
	}
	if len(positions) == 0 {
		return ""
	}
	if token := encode(strings.Join(positions, separator)); len(token) <= MaxToken {
		return token
	}
	return encode(unknown)
}

func encode(text string) string {
	return version + base64.RawURLEncoding.EncodeToString([]byte(text))
}

// add adds the floor of a token. If it is not a token, only the primary is new enough. An empty text adds nothing.
func (all *Floors) add(token string) {
	if token == "" {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, position := range decode(token) {
		all.keep(position)
		for _, f := range all.own {
			f.add(position)
		}
	}
}

// keep keeps a position of a token for floors to come. A context may get tokens for as long as it lives.
func (all *Floors) keep(position string) {
	if slices.Contains(all.tokens, position) {
		return
	}
	if len(all.tokens) >= maxKept {
		all.tokens = all.tokens[:0]
		position = unknown
	}
	all.tokens = append(all.tokens, position)
}

func decode(token string) (positions []string) {
	text, ok := strings.CutPrefix(token, version)
	if !ok || len(token) > MaxToken {
		return []string{unknown}
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return []string{unknown}
	}
	return strings.Split(string(decoded), separator)
}
