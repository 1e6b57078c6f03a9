package master

// unprogrammedPods tracks the pods of each EgressIP whose traffic does not leave as intended yet. The
// mutex of podStates guards it.
type unprogrammedPods struct {
	byEgressIP map[string]map[string]bool
	byPod      map[string]map[string]bool
}

func newUnprogrammedPods() unprogrammedPods {
	return unprogrammedPods{byEgressIP: map[string]map[string]bool{}, byPod: map[string]map[string]bool{}}
}

// add records that the traffic of a pod of an EgressIP does not leave as intended.
func (u unprogrammedPods) add(name, pod string) {
	put(u.byEgressIP, name, pod)
	put(u.byPod, pod, name)
}

// remove records that an EgressIP no longer waits for a pod; last reports whether this was
// the last pod it waited for.
func (u unprogrammedPods) remove(name, pod string) (last bool) {
	if !u.byEgressIP[name][pod] {
		return false
	}
	drop(u.byPod, pod, name)
	return drop(u.byEgressIP, name, pod)
}

// forget removes the state of a deleted EgressIP.
func (u unprogrammedPods) forget(name string) {
	for pod := range u.byEgressIP[name] {
		drop(u.byPod, pod, name)
	}
	delete(u.byEgressIP, name)
}

// of returns the EgressIPs of which a pod is not programmed yet.
func (u unprogrammedPods) of(pod string) []string {
	names := make([]string, 0, len(u.byPod[pod]))
	for name := range u.byPod[pod] {
		names = append(names, name)
	}
	return names
}

// count returns the number of pods an EgressIP waits for.
func (u unprogrammedPods) count(name string) int { return len(u.byEgressIP[name]) }

func put(sets map[string]map[string]bool, key, member string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][member] = true
}

func drop(sets map[string]map[string]bool, key, member string) (empty bool) {
	if delete(sets[key], member); len(sets[key]) > 0 {
		return false
	}
	delete(sets, key)
	return true
}
