package riverpooldriver

import (
	"context"
	"errors"
	"sync"

	"github.com/riverqueue/river/riverdriver"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// listener is a riverdriver.Listener whose connection is that of Connector.Listen. Nothing is told of a gap: River could
// only listen anew, after a pause, and would miss more meanwhile.
type listener struct {
	pool *pgxpooldriver.Pool

	mu           sync.Mutex // protects following fields
	schema       string
	afterConnect string
	prefix       string            // of channels
	topics       map[string]func() // what ends the Listen of each; nil: not connected
	heard        chan heard
}

// heard is a notification, or why a Listen has ended.
type heard struct {
	*riverdriver.Notification
	err error
}

var errNotConnected = errors.New("riverpooldriver: the listener is not connected: call Connect first")

// Schema implements riverdriver.Listener.
func (l *listener) Schema() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.schema
}

// SetAfterConnectExec implements riverdriver.Listener. Only tests use it.
func (l *listener) SetAfterConnectExec(sql string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.afterConnect = sql
}

// Connect implements riverdriver.Listener: it finds out the schema. The connection is opened for the first Listen.
func (l *listener) Connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics != nil {
		return errors.New("riverpooldriver: the listener is connected already: call Close first")
	}
	if l.schema == "" {
		if err := l.pool.AcquireFunc(pooldriver.WithPriority(ctx, pooldriver.PriorityHigh), func(c *pgxpooldriver.Conn) error { return l.findSchema(ctx, c) }); err != nil {
			return translated(err)
		}
	}
	if l.prefix = ""; l.schema != "" {
		l.prefix = l.schema + "."
	}
	l.topics, l.heard = map[string]func(){}, make(chan heard)
	return nil
}

func (l *listener) findSchema(ctx context.Context, c *pgxpooldriver.Conn) error {
	if l.afterConnect != "" {
		if _, err := c.Exec(ctx, l.afterConnect); err != nil {
			return err
		}
	}
	return c.QueryRow(ctx, "SELECT coalesce(current_schema(), '')").Scan(&l.schema)
}

// Listen implements riverdriver.Listener. It returns when the server listens.
func (l *listener) Listen(ctx context.Context, topic string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics == nil {
		return errNotConnected
	}
	if l.topics[topic] != nil {
		return nil
	}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	listens, ended, refused := make(chan struct{}), make(chan struct{}), error(nil)
	end := func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		refused = listen(within, l.pool.Connector(), l.prefix+topic, topic, listens, l.heard)
	}()
	select {
	case <-listens:
		l.topics[topic] = end
		return nil
	case <-ctx.Done():
		end()
		return ctx.Err()
	case <-ended:
		cancel()
		return translated(refused)
	}
}

// listen listens until ctx ends. It closes listens when the server does. Then it tells what it hears, and its error.
func listen(ctx context.Context, c *pooldriver.Connector, channel, topic string, listens chan struct{}, to chan<- heard) error {
	begun := false
	tell := func(h heard) {
		select {
		case to <- h:
		case <-ctx.Done():
		}
	}
	err := c.Listen(ctx, channel, func(_ context.Context, n pooldriver.Notification) {
		switch {
		case !n.Gap:
			tell(heard{Notification: &riverdriver.Notification{Topic: topic, Payload: n.Payload}})
		case !begun:
			begun = true
			close(listens)
		}
	})
	if begun && err != nil {
		tell(heard{err: translated(err)})
	}
	return err
}

// Unlisten implements riverdriver.Listener.
func (l *listener) Unlisten(_ context.Context, topic string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.topics[topic]; end != nil {
		delete(l.topics, topic)
		end()
	}
	return nil
}

// WaitForNotification implements riverdriver.Listener.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	l.mu.Lock()
	from := l.heard
	l.mu.Unlock()
	if from == nil {
		return nil, errNotConnected
	}
	select {
	case h, open := <-from:
		if !open {
			return nil, errNotConnected
		}
		return h.Notification, h.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ping implements riverdriver.Listener. The Connector pings its connection by itself.
func (l *listener) Ping(context.Context) error { return nil }

// Close implements riverdriver.Listener. Afterwards Connect may be called again.
func (l *listener) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.topics {
		end()
	}
	if l.heard != nil {
		close(l.heard) // for those that wait
	}
	l.topics, l.heard = nil, nil
	return nil
}
