package queue

import "slices"

// order is the workqueue.Queue of a Controller: urgent keys first, otherwise first in, first out. The
// work queue calls its methods one at a time.
type order struct {
	urgent      func(key string) bool
	first, rest []string // first has the urgent keys
}

// Touch moves a waiting key that was enqueued again, and is urgent now, to the urgent ones.
func (o *order) Touch(key string) {
	if !o.urgent(key) {
		return
	}
	if i := slices.Index(o.rest, key); i >= 0 {
		o.rest = slices.Delete(o.rest, i, i+1)
		o.first = append(o.first, key)
	}
}

// Push adds a key.
func (o *order) Push(key string) {
	if o.urgent(key) {
		o.first = append(o.first, key)
	} else {
		o.rest = append(o.rest, key)
	}
}

// Len returns the number of keys.
func (o *order) Len() int { return len(o.first) + len(o.rest) }

// Pop removes and returns the next key; there must be one.
func (o *order) Pop() (key string) {
	from := &o.rest
	if len(o.first) > 0 {
		from = &o.first
	}
	key, (*from)[0] = (*from)[0], ""
	*from = (*from)[1:]
	return key
}
