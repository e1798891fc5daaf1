package mysql

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// logins is what a template knows of users and passwords that are not the DSN's.
type logins struct {
	// ask returns the current credential; nil if there is none but the DSN's.
	ask func(ctx context.Context, refused dialects.Credential) (dialects.Credential, error)

	newest atomic.Pointer[dialects.Credential] // that a server has accepted
}

var _ dialects.CredentialAsker = (*template)(nil)

// AskCredentials: if the server refuses the credentials that the killer knows, the killer calls ask.
func (t *template) AskCredentials(ask func(context.Context, dialects.Credential) (dialects.Credential, error)) {
	t.logins.ask = ask
}

// attempts is what a killer has learned about credentials. The killer forgets it when its last call
// of stop ends.
type attempts struct {
	refused []dialects.Credential // not tried again: some servers lock an account for it
	reason  error                 // of the last refusal
	current *dialects.Credential  // the last answer of ask
	asked   time.Time
}

// askPause is the pause between two questions for the current credential.
const askPause = time.Second

// maxRefused bounds how many credentials are remembered if every answer is a new token.
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

// With these errors the killer can do nothing for now. Another credential may come, or the statement
// may end.
var (
	// errRefused: the server accepts none of the credentials.
	errRefused = errors.New("the server accepts none of the known users and passwords that may kill the statement")
	// errUnseen: a user without the privilege to see other users' connections cannot see that such
	// a connection has ended.
	errUnseen = fmt.Errorf("%w: the user that it accepts may not see the connection", errRefused)
	// errDenied: another user sees the connection and may not kill it.
	errDenied = fmt.Errorf("%w: the user that it accepts may not kill another user's", errRefused)
)

// refusedPause is the pause between two tries while no credential helps.
const refusedPause = 250 * time.Millisecond

// connect opens a connection that can end v, unless one is open. It leads to the same address. Its
// user is v's user, who may always end v, or another user, who may have the privileges. The lock is
// held.
func (k *killer) connect(ctx context.Context, v victim) error {
	if k.open && k.at != v.remote {
		k.hangUp() // it leads to another server of the same name
	}
	if k.open && k.as.User == v.login.User {
		return nil
	}
	for as := range k.credentials(ctx, v.login) {
		switch {
		case k.tried.wasRefused(as):
			continue
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
	return fmt.Errorf("%w: %w", errRefused, k.tried.reason)
}

// credentials are those to try: the connection's own, or a newer one of its user; the current one of
// the program's source; and the newest one of any user.
func (k *killer) credentials(ctx context.Context, own dialects.Credential) iter.Seq[dialects.Credential] {
	return func(yield func(dialects.Credential) bool) {
		newest := k.logins.newest.Load()
		if newest != nil && newest.User == own.User {
			own = *newest
		}
		if !yield(own) {
			return
		}
		if current := k.current(ctx, own); current != nil && !yield(*current) || newest == nil {
			return
		}
		yield(*newest)
	}
}

// current asks for the current credential. If that fails, it returns the last credential.
func (k *killer) current(ctx context.Context, refused dialects.Credential) *dialects.Credential {
	t := &k.tried
	if k.logins.ask == nil || time.Since(t.asked) < askPause {
		return t.current
	}
	if cred, err := k.logins.ask(ctx, refused); err == nil {
		t.current = &cred
	}
	t.asked = time.Now()
	return t.current
}
