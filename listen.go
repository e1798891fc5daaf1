package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/listen"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// Notification is what Connector.Listen tells.
type Notification struct {
	Channel string
	Payload string // empty for a gap
	// Gap: notifications may be missing whose transactions have committed between Since and Until.
	// Both are times of this process's clock. Since is zero for the first Notification of a Listen.
	Gap          bool
	Since, Until time.Time
}

// listenCloseWait is how long the close of a Connector waits for the connection of its listeners.
const listenCloseWait = time.Second

// initListen prepares the listeners of a Connector. d is the dialect of its DSN.
func initListen(c *Connector, d dialects.Dialect) error {
	t := c.template
	if c.config.ListenDSN != "" {
		var err error
		if t, err = c.config.listenTemplate(d); err != nil {
			return err
		}
	}
	listening, ok := t.(dialects.ListenTemplate)
	if !ok {
		return nil
	}
	by := connpool.NewListening(c.pool, listening)
	c.checkChannel = listening.CheckChannel
	c.listens = listen.New(listen.Config{
		Dial: func(ctx context.Context) (listen.Conn, error) {
			conn, err := by.Dial(ctx)
			if err != nil {
				return nil, err // a nil *connpool.Listener would be no nil Conn
			}
			return conn, nil
		},
		Outage: by.Outage, Denied: by.Denied,
		Ping: c.settings.ListenPing, Timeout: c.settings.PingTimeout,
		Dialled: c.report.ListenDialled, Lost: c.report.ListenLost, Overflowed: c.report.ListenOverflowed,
	})
	return nil
}

// listenTemplate makes the template of ListenDSN. d is the dialect of the Connector's DSN.
func (c *Config) listenTemplate(d dialects.Dialect) (dialects.Template, error) {
	own, err := dialects.Find(c.ListenDSN)
	if err != nil {
		return nil, fmt.Errorf("pooldriver: Config.ListenDSN: %w", err)
	}
	if own.Name() != d.Name() {
		return nil, fmt.Errorf("pooldriver: Config.ListenDSN is for %s, and the Connector for %s", own.Name(), d.Name())
	}
	t, err := own.Parse(c.ListenDSN)
	if err != nil {
		return nil, fmt.Errorf("pooldriver: Config.ListenDSN for %s: %w", own.Name(), err)
	}
	if len(t.PoolParams()) > 0 {
		return nil, errors.New("pooldriver: Config.ListenDSN has parameters of the pool, which belong to the Connector's DSN")
	}
	return t, c.fit(own, t)
}

// listenOn is Connector.Listen.
func listenOn(ctx context.Context, c *Connector, channel string, fn func(context.Context, Notification)) error {
	switch {
	case fn == nil:
		return errors.New("pooldriver: Listen was given no function")
	case c.listens == nil:
		return fmt.Errorf("pooldriver: Listen: %s sends no notifications that pooldriver knows; PostgreSQL does", c.report.Target())
	case c.pool.Draining():
		return c.pool.DrainingError()
	}
	if err := c.checkChannel(channel); err != nil {
		return fmt.Errorf("pooldriver: Listen: %w", err)
	}
	inside := task.Outside(ctx)
	who := report.Who{}
	if label := task.PlaceOf(ctx).Label; label != nil {
		who.Label = *label
	}
	if err := c.listens.Listen(ctx, channel, func(n listen.Notification) (err error) {
		defer c.report.Guarded("the function of Connector.Listen", &who, &err)
		fn(floor.WithNow(inside), Notification(n))
		return nil
	}); err != nil {
		return fmt.Errorf("pooldriver: Listen: %w", err)
	}
	return nil
}

// endListeners ends the listeners of a Connector, and their connection.
func endListeners(c *Connector) {
	if c.listens != nil {
		c.listens.Close(fmt.Errorf("the Connector for %s is closed: %w", c.report.Target(), pool.ErrClosed), listenCloseWait)
	}
}

// listenStats are the figures of a Connector's listeners; h is nil on other databases.
func listenStats(h *listen.Hub) ListenStats {
	if h == nil {
		return ListenStats{State: ListenUnused}
	}
	l := h.Look()
	return ListenStats{
		State: listenStates[l.State], Since: l.Since, Channels: len(l.Channels), Listeners: l.Listeners,
		Received: h.Received.Load(), Dropped: h.Dropped.Load(), Gaps: h.Gaps.Load(), Losses: h.Losses.Load(),
	}
}

// listenHolder is the connection of a Connector's listeners, as Holders shows it.
func listenHolder(h *listen.Hub) (held Holder, ok bool) {
	if h == nil {
		return held, false
	}
	l := h.Look()
	conn, ok := l.Conn.(*connpool.Listener)
	if !ok {
		return held, false
	}
	held = Holder{Conn: conn.Number, Host: conn.Host, ProcessID: dialects.ProcessID(conn.Listener), Since: l.Since, Pin: PinListen,
		Statement: "LISTEN " + strings.Join(l.Channels, ", ")}
	if len(held.Statement) > statementShown {
		held.Statement = strings.ToValidUTF8(held.Statement[:statementShown], "") + "…"
	}
	return held, true
}

// statementShown is how much of a statement Holders shows, in bytes.
const statementShown = 200
