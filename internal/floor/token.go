package floor

import (
	"encoding/base64"
	"slices"
	"strings"
)

// MaxToken is the longest token, in bytes. It fits into a cookie.
const MaxToken = 3000

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
	for _, f := range all.own {
		position, primaryOnly := f.Now()
		if position == "" && !primaryOnly {
			continue
		}
		positions = slices.DeleteFunc(positions, func(old string) bool {
			return old == unknown || f.positions.Reached(old, position)
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
	positions := decode(token)
	all.tokens = append(all.tokens, positions...)
	for _, f := range all.own {
		for _, position := range positions {
			f.add(position)
		}
	}
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
