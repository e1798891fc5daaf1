package pool

import "time"

// Reason says why a resource is destroyed.
type Reason uint8

// The reasons; Destroyed counts them.
const (
	ReasonLifetime Reason = iota
	ReasonIdleTime
	ReasonCheckFailed
	ReasonBeforeAcquire
	ReasonBeforeRelease
	ReasonDiscarded
	ReasonFlushed
	ReasonResized
	ReasonClosed
	reasons           // the number of reasons
	fit     = reasons // there is no reason to destroy the resource
)

// retireLocked takes r, which is in no list any more, out of use and has it
// destroyed in the background. r keeps its place until then. The caller must call balanceLocked
// next.
func (p *Pool[T]) retireLocked(r *resource[T], why Reason) {
	r.stamp++ // leases of r that were given before are invalid
	if w := r.w; w != nil {
		r.w = nil
		p.recycleLocked(w)
	}
	p.count.destroyed[why]++
	p.destroying++
	if p.cfg.Destroy == nil && p.cfg.Destroying == nil {
		p.destroyedLocked(r)
		return
	}
	go p.destroy(r, why)
}

// destroy runs Destroying and Destroy, and frees the place of r, after DestroyTimeout at
// the latest.
func (p *Pool[T]) destroy(r *resource[T], why Reason) {
	if d := p.cfg.DestroyTimeout; d > 0 {
		t := time.AfterFunc(d, func() {
			if p.destroyEnded(r, true) {
				p.report("Destroy", errOrphaned)
			}
		})
		defer t.Stop()
	}
	detached("Destroy",
		func() error {
			if p.cfg.Destroying != nil {
				p.report("Destroying", call("Destroying", func() error { p.cfg.Destroying(r.value, why); return nil }, func(error) {}))
			}
			if p.cfg.Destroy != nil {
				p.cfg.Destroy(r.value)
			}
			return nil
		},
		func(err error) {
			p.destroyEnded(r, false)
			p.report("Destroy", err)
		})
}

// destroyEnded frees the place of r, unless the place is free already.
func (p *Pool[T]) destroyEnded(r *resource[T], timedOut bool) (freed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.gone {
		return false
	}
	if timedOut {
		p.count.orphaned++
	}
	p.destroyedLocked(r)
	p.balanceLocked()
	return true
}

func (p *Pool[T]) destroyedLocked(r *resource[T]) {
	r.gone = true
	p.destroying--
	p.total--
	if r.closer != nil {
		r.closer.Done()
	}
}
