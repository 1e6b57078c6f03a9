package host

// FlowList holds flows with distinct keys, in arbitrary order.
type FlowList struct {
	key  func(Flow) string
	list []Flow
	at   map[string]int // by key
}

// NewFlowList returns a list of flows. key returns the key of a flow; of several flows with the
// same key the first is kept.
func NewFlowList(key func(Flow) string, flows []Flow) *FlowList {
	l := &FlowList{key: key, list: make([]Flow, 0, len(flows)), at: make(map[string]int, len(flows))}
	for _, f := range flows {
		if k := key(f); !l.Has(k) {
			l.at[k] = len(l.list)
			l.list = append(l.list, f)
		}
	}
	return l
}

// Flows returns all flows, which the caller must not change.
func (l *FlowList) Flows() []Flow {
	if l == nil {
		return nil
	}
	return l.list
}

// Get returns the flow with a key, or "" if there is none.
func (l *FlowList) Get(key string) Flow {
	if l == nil {
		return ""
	}
	if i, ok := l.at[key]; ok {
		return l.list[i]
	}
	return ""
}

// Has reports whether there is a flow with a key.
func (l *FlowList) Has(key string) bool { return l.Get(key) != "" }

// Put adds a flow, or replaces the one with the same key.
func (l *FlowList) Put(f Flow) {
	k := l.key(f)
	if i, ok := l.at[k]; ok {
		l.list[i] = f
		return
	}
	l.at[k] = len(l.list)
	l.list = append(l.list, f)
}

// Delete removes the flow with a key, if any.
func (l *FlowList) Delete(key string) {
	i, ok := l.at[key]
	if !ok {
		return
	}
	last := len(l.list) - 1
	l.list[i] = l.list[last]
	l.at[l.key(l.list[i])] = i
	delete(l.at, key)
	l.list[last] = ""
	l.list = l.list[:last]
}
