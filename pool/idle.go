package pool

// idleList holds idle resources in the order in which they became idle, in a
// ring: both ends are cheap, so that LIFO and FIFO cost the same.
type idleList[T any] struct {
	ring []*resource[T] // length a power of two
	head int            // index of the oldest
	n    int
	last uint64 // idleOrder of the newest resource
}

func (l *idleList[T]) at(i int) *resource[T] { return l.ring[(l.head+i)&(len(l.ring)-1)] }

func (l *idleList[T]) set(i int, r *resource[T]) { l.ring[(l.head+i)&(len(l.ring)-1)] = r }

// push adds r as the newest.
func (l *idleList[T]) push(r *resource[T]) {
	if l.n == len(l.ring) {
		l.grow()
	}
	l.last++
	r.idleOrder = l.last
	l.set(l.n, r)
	l.n++
}

func (l *idleList[T]) grow() {
	ring := make([]*resource[T], max(4, 2*len(l.ring)))
	for i := range l.n {
		ring[i] = l.at(i)
	}
	l.ring, l.head = ring, 0
}

// popNewest takes out the newest; there must be one.
func (l *idleList[T]) popNewest() *resource[T] {
	l.n--
	i := (l.head + l.n) & (len(l.ring) - 1)
	r := l.ring[i]
	l.ring[i] = nil
	return r
}

// popOldest takes out the oldest; there must be one.
func (l *idleList[T]) popOldest() *resource[T] {
	r := l.ring[l.head]
	l.ring[l.head] = nil
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.n--
	return r
}

// removeAt takes out number i, counted from the oldest.
func (l *idleList[T]) removeAt(i int) *resource[T] {
	r := l.at(i)
	for ; i < l.n-1; i++ {
		l.set(i, l.at(i+1))
	}
	l.n--
	l.set(l.n, nil)
	return r
}

// restore puts r back where it was before a check took it out: a check is not a use. It must change
// neither the order of lending nor the idle times.
func (l *idleList[T]) restore(r *resource[T]) {
	if l.n == len(l.ring) {
		l.grow()
	}
	i := l.n
	for ; i > 0 && l.at(i-1).idleOrder > r.idleOrder; i-- {
		l.set(i, l.at(i-1))
	}
	l.set(i, r)
	l.n++
}

// find gives the place of r, or -1.
func (l *idleList[T]) find(r *resource[T]) int {
	for i := range l.n {
		if l.at(i) == r {
			return i
		}
	}
	return -1
}
