package clones

import "context"

// newDesk begins to make the stock.
func newDesk(server server, stock int) *desk {
	ctx, stop := context.WithCancel(context.Background())
	d := &desk{server: server, stop: stop, wanted: make(chan struct{}, 1)}
	if stock > 0 {
		d.filler.Go(func() { d.fill(ctx, stock) })
	}
	return d
}

// want tells the filler that the stock may have become smaller.
func (d *desk) want() {
	select {
	case d.wanted <- struct{}{}:
	default: // It was told already.
	}
}

// fill makes clones until there are enough, whenever it is told, and as long as a test has a clone:
// after the last test nobody should wait for the filler. All processes count the same stock. Each
// process makes at most one clone too many. An error ends the filler. The next test then makes its
// clone itself, and reports what is wrong.
func (d *desk) fill(ctx context.Context, enough int) {
	for {
		select {
		case <-d.wanted:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil && d.users.Load() > 0 {
			if n, err := d.server.stocked(ctx); err != nil || n >= enough {
				break
			}
			if _, err := d.server.make(ctx, ""); err != nil {
				return
			}
		}
	}
}

// close ends the filler, and then the owner's session.
func (d *desk) close() {
	d.stop()
	d.filler.Wait()
	d.server.close()
}
