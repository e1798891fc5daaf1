package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
)

// resetProofs says on which servers, by their versions, COM_RESET_CONNECTION was seen to reset
// anything. Vitess answers OK and does nothing. One address may lead to several versions.
type resetProofs struct {
	mu   sync.Mutex // protects seen
	seen map[string]error
}

// errKeepsState: on such a server all that a session has set reaches the next borrower, unless the
// connection is replaced.
var errKeepsState = errors.New("the server answers COM_RESET_CONNECTION and keeps the session's state")

// of reports whether a version was tried. err is errKeepsState if that version keeps state.
func (p *resetProofs) of(version string) (tried bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err, tried = p.seen[version]
	return tried, err
}

func (p *resetProofs) record(version string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]error{}
	}
	p.seen[version] = err
}

// mark sets a variable that a reset must remove, once for each version.
func (s *session) mark(ctx context.Context) (marked bool, err error) {
	tried, err := s.proofs.of(s.version)
	if err != nil {
		return false, fmt.Errorf("%w: %w", dialects.ErrCannotClean, err)
	}
	if tried {
		return false, nil
	}
	return true, execute(ctx, s.conn, "SET @pooldriver_reset = 1")
}

// prove looks, after a reset, whether the mark is gone.
func (s *session) prove(ctx context.Context) error {
	answer, err := ask(ctx, s.conn, "SELECT @pooldriver_reset")
	if err != nil {
		return err
	}
	if len(answer) == 1 && len(answer[0]) == 1 && answer[0][0].valid {
		s.proofs.record(s.version, errKeepsState)
		return fmt.Errorf("%w: %w", dialects.ErrCannotClean, errKeepsState)
	}
	s.proofs.record(s.version, nil)
	return nil
}
