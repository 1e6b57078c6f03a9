package queue

// order is the workqueue.Queue of a Controller: urgent keys first, otherwise first in, first out. The
// work queue calls its methods one at a time.
type order struct {
	urgent func(key string) bool
	first  []string // urgent keys
	// rest has the other keys, and those that became urgent while they waited: to look for one would
	// cost more the more keys wait.
	rest   []entry
	waits  map[string]uint64 // the numbers of the keys that wait in rest
	number uint64            // the last one
}

// entry is a key that waits in rest if it still has this number.
type entry struct {
	key    string
	number uint64
}

// Touch moves a waiting key that was enqueued again, and is urgent now, to the urgent ones.
func (o *order) Touch(key string) {
	if !o.urgent(key) {
		return
	}
	if o.waits[key] > 0 {
		delete(o.waits, key)
		o.first = append(o.first, key)
	}
	if len(o.waits) == 0 {
		o.rest = nil
	}
}

// Push adds a key.
func (o *order) Push(key string) {
	if o.urgent(key) {
		o.first = append(o.first, key)
		return
	}
	if o.waits == nil {
		o.waits = map[string]uint64{}
	}
	o.number++
	o.waits[key] = o.number
	o.rest = append(o.rest, entry{key, o.number})
}

// Len returns the number of keys.
func (o *order) Len() int { return len(o.first) + len(o.waits) }

// Pop removes and returns the next key; there must be one.
func (o *order) Pop() string {
	if len(o.first) > 0 {
		return shift(&o.first)
	}
	for {
		next := shift(&o.rest)
		if o.waits[next.key] == next.number {
			delete(o.waits, next.key)
			return next.key
		}
	}
}

// shift removes and returns the first element.
func shift[T any](list *[]T) T {
	var none T
	first := (*list)[0]
	(*list)[0] = none
	*list = (*list)[1:]
	return first
}
