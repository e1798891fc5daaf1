package listen

import (
	"context"
	"time"
)

// service is the use of one connection.
type service struct {
	hub  *Hub
	conn Conn
	// proven is when the last round trip that has succeeded began. A session sends the notifications
	// that it knows of before it answers a statement, and whoever commits tells the sessions before the
	// commit returns. So every notification that was committed before proven has arrived.
	proven time.Time
}

// run returns when ctx ends, or with the error that shows that the connection is lost.
func (s *service) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.update(ctx); err != nil {
			return err
		}
		due := s.proven.Add(s.hub.config.Ping)
		wait, cancel := context.WithDeadline(ctx, due)
		err := s.receive(wait, cancel)
		cancel()
		if err == nil && !time.Now().Before(due) {
			err = s.ask(ctx, s.conn.Ping)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive delivers notifications until ctx ends: stop ends it when channels have changed. An error
// shows that the connection is lost.
func (s *service) receive(ctx context.Context, stop context.CancelFunc) error {
	for s.hub.waits(s.conn, stop) {
		channel, payload, err := s.conn.Wait(ctx)
		switch {
		case err == nil:
			s.hub.deliver(channel, payload, s.proven)
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
	}
	return nil
}

// drain delivers what has arrived already.
func (s *service) drain() {
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		channel, payload, err := s.conn.Wait(ended)
		if err != nil {
			return
		}
		s.hub.deliver(channel, payload, s.proven)
	}
}

// ask makes a round trip. What has arrived during it may have been committed before it.
func (s *service) ask(ctx context.Context, what func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.hub.config.Timeout)
	defer cancel()
	begun := time.Now()
	err := what(ctx)
	s.drain()
	if err == nil {
		s.proven = begun
	}
	return err
}

// update makes the server send what the listeners want. An error shows that the connection is lost.
func (s *service) update(ctx context.Context) error {
	alone := false // each channel by itself, because the server refuses one of them
	for {
		listen, unlisten := s.hub.differences()
		if alone && len(listen) > 1 {
			listen = listen[:1]
		}
		var err error
		switch {
		case len(unlisten) > 0:
			err = s.ask(ctx, func(ctx context.Context) error { return s.conn.Unlisten(ctx, unlisten) })
		case len(listen) > 0:
			err = s.ask(ctx, func(ctx context.Context) error { return s.conn.Listen(ctx, listen) })
			switch {
			case err == nil:
				s.hub.listensTo(listen)
			case s.hub.config.Outage(err) || s.ask(ctx, s.conn.Ping) != nil:
				return err
			case len(listen) > 1:
				alone, err = true, nil
			default:
				s.hub.refuse(listen[0], err)
				err = nil
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// waits reports whether the channels are still those of the last update. From then on stop is called
// when they change.
func (h *Hub) waits(conn Conn, stop context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake = stop
	h.setStateLocked(Listening, conn)
	return !h.changed
}

// differences are the channels that the server is to send from now on, or no more. A channel that the
// server sends no more is forgotten before it is told so: who joins meanwhile makes a new one.
func (h *Hub) differences() (listen, unlisten []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = false
	for name, c := range h.channels {
		switch {
		case !c.live:
			listen = append(listen, name)
		case len(c.queues) == 0:
			delete(h.channels, name)
			unlisten = append(unlisten, name)
		}
	}
	return listen, unlisten
}

// listensTo: the server sends the channels from now on. Their listeners are told of the gap. The
// listeners of a channel may have left meanwhile, and others may have come.
func (h *Hub) listensTo(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		c := h.channels[name]
		if c == nil {
			c = &channel{}
			h.channels[name] = c
			h.changed = true
		}
		c.live = true
		for _, q := range c.queues {
			h.lose(q, c.lost, now)
		}
	}
}

// refuse ends the listeners of a channel that the server refuses.
func (h *Hub) refuse(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.channels[name]; c != nil {
		h.endLocked(c, err)
	}
}
