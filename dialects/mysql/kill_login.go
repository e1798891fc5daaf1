package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// logins is what a template knows of users and passwords that are not the DSN's.
type logins struct {
	// ask returns the current credential; nil if there is none but the DSN's.
	ask func(ctx context.Context, refused dialects.Credential) (dialects.Credential, error)

	mu     sync.Mutex           // protects following fields
	begun  uint64               // dials
	newest *dialects.Credential // of those that a server has let in
	order  uint64               // of the dial that had it
}

var _ dialects.CredentialAsker = (*template)(nil)

// AskCredentials: what it was given is asked when the credentials that the killer
// knows are refused.
func (t *template) AskCredentials(ask func(context.Context, dialects.Credential) (dialects.Credential, error)) {
	t.logins.ask = ask
}

// begin returns the place of a dial in the order of their beginnings.
func (l *logins) begin() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	return l.begun
}

// took notes that a server has let in the dial with that place.
func (l *logins) took(order uint64, cred *dialects.Credential) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cred == nil || order < l.order {
		return
	}
	own := *cred
	l.newest, l.order = &own, order
}

// latest is the newest credential that a server has let in.
func (l *logins) latest() (cred dialects.Credential, ok bool) {
	if l == nil {
		return cred, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest == nil {
		return cred, false
	}
	return *l.newest, true
}

// attempts is what a killer has learned of credentials. It is forgotten with the
// last of its users.
type attempts struct {
	refused []dialects.Credential // not tried again: some servers lock an account for it
	reason  error                 // of the last refusal
	current *dialects.Credential  // what asking has given
	asked   time.Time
}

// askPause is between two questions for the credential of now.
const askPause = time.Second

// maxRefused bounds what is remembered where every answer is another token.
const maxRefused = 32

func (a *attempts) refuse(cred dialects.Credential, reason error) {
	if len(a.refused) == maxRefused {
		a.refused = a.refused[1:]
	}
	a.refused, a.reason = append(a.refused, cred), reason
}

func (a *attempts) wasRefused(cred dialects.Credential) bool {
	for _, r := range a.refused {
		if r.User == cred.User && r.Password == cred.Password {
			return true
		}
	}
	return false
}

var (
	// errRefused: the server lets in none of the credentials.
	errRefused = errors.New("no user and password that are known is let in to kill it")
	// errUnseen: a user without the privilege to see other users' connections cannot
	// tell that one of them has ended.
	errUnseen = errors.New("its user is let in no more, and another one may not see it")
	// errDenied: another user sees it and may not kill it.
	errDenied = errors.New("its user is let in no more, and another one may not kill it")
)

// unable reports whether the killer can do nothing for now. Another credential may come,
// or the statement may end.
func unable(err error) bool {
	return errors.Is(err, errRefused) || errors.Is(err, errUnseen) || errors.Is(err, errDenied)
}

// unablePause is between two tries then.
const unablePause = 250 * time.Millisecond

// connect opens a connection that can end v, unless there is one. It leads to the same
// address. Its user is v's, which may always end v, or another one, which may have the
// privileges. The lock is held.
func (k *killer) connect(ctx context.Context, v victim) error {
	if k.open && k.at != v.remote {
		k.hangUp() // that is another server of the same name
	}
	if k.open && k.as.User == v.login.User {
		return nil
	}
	for {
		as, ok := k.choose(ctx, v.login)
		switch {
		case !ok:
			return fmt.Errorf("%w: %w", errRefused, k.tried.reason)
		case k.open && k.as.User == as.User:
			return nil
		}
		k.hangUp()
		l, err := k.dial(ctx, v.remote, as)
		switch {
		case err == nil:
			k.link, k.open, k.at, k.as = l, true, v.remote, as
			return nil
		case diagnose(err)&dialects.AuthFailed == 0:
			return err
		}
		k.tried.refuse(as, err)
	}
}

// choose returns the credential to try next, if there is one left: the newest if it is
// the same user's, else the connection's own. Both may have expired. Then the program's
// source is asked for the current one.
func (k *killer) choose(ctx context.Context, own dialects.Credential) (as dialects.Credential, ok bool) {
	newest, known := k.logins.latest()
	if known && newest.User == own.User {
		own = newest
	}
	if !k.tried.wasRefused(own) {
		return own, true
	}
	if current := k.current(ctx, own); current != nil && !k.tried.wasRefused(*current) {
		return *current, true
	}
	return newest, known && !k.tried.wasRefused(newest)
}

// current asks for the current credential. If that fails, the last one is returned.
func (k *killer) current(ctx context.Context, refused dialects.Credential) *dialects.Credential {
	if k.logins == nil || k.logins.ask == nil {
		return nil
	}
	if t := &k.tried; t.asked.IsZero() || time.Since(t.asked) >= askPause {
		if cred, err := k.logins.ask(ctx, refused); err == nil {
			t.current = &cred
		}
		t.asked = time.Now()
	}
	return k.tried.current
}
