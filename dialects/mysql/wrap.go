package mysql

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
)

// wrapped makes connections by the program's connector. There is no wire under them: the
// bytes are not counted, the connection's number costs a round trip, and a session cannot
// be cleaned in place.
type wrapped struct {
	*base.Template
	killer *killer
}

var _ dialects.Template = (*wrapped)(nil)

func wrap(c driver.Connector) (dialects.Template, error) {
	t, err := base.Wrap(c, "mysql by a connector")
	if err != nil {
		return nil, err
	}
	w := &wrapped{Template: t}
	w.killer = newKiller(func(ctx context.Context, _ string, _ dialects.Credential) (link, error) {
		return w.connect(ctx, nil)
	})
	return w, nil
}

func (w *wrapped) connect(ctx context.Context, cred *dialects.Credential) (link, error) {
	conn, err := w.Connect(ctx, cred)
	return link{conn: conn}, err
}

func (w *wrapped) Traits() dialects.Traits { return traits }

func (w *wrapped) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	l, err := w.connect(ctx, cred)
	if err != nil {
		return nil, err
	}
	s := newSession(l, w.killer, w)
	// The number must be known before a statement is cancelled: afterwards the connection cannot be
	// asked.
	if s.thread, err = askThread(ctx, l.conn); err == nil {
		err = s.checkAutocommit()
	}
	if err != nil {
		l.drop()
		return nil, err
	}
	return s, nil
}
