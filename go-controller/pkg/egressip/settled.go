package egressip

// maxSteps bounds the number of plans until the rows of a pod are final. A handful is
// enough, since each plan puts in force what the next one needs.
const maxSteps = 20

// Settled returns the final rows of the pod: it executes plans until nothing is left to be
// done, as if chassis put in force at once what a plan waits for. ok is false if the plans do
// not come to an end.
func (s Steering) Settled() (end State, ok bool) {
	s.InForce = s.InForce.Clone()
	for range maxSteps {
		plan := s.Plan()
		s.Now = StateOf(plan.Want.Rows())
		if plan.Done {
			return s.Now, true
		}
		for _, n := range plan.Await {
			for site, a := range plan.Want.NATs {
				if site.Node == n {
					s.InForce.NATs[site] = a
				}
			}
		}
		if plan.Self {
			s.InForce.Policies = plan.Want.Clone().Policies
		}
	}
	return s.Now, false
}
