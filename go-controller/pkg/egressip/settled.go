package egressip

// maxSteps limits the number of plans until a pod has its final rows. A handful
// suffice, since each plan puts in force what the next one needs.
const maxSteps = 20

// Settled returns the final rows of the pod: it carries out plans until
// nothing is left to be done, assuming that chassis put everything in force that is waited for.
// ok is false if the plans do not converge.
func (s Steering) Settled() (end State, ok bool) {
	s.Applied = s.Applied.Clone()
	for range maxSteps {
		plan := s.Plan()
		s.Now = StateOf(plan.Want.Rows())
		if plan.Done {
			return s.Now, true
		}
		for _, n := range plan.Await {
			for site, a := range plan.Want.NATs {
				if site.Node == n {
					s.Applied.NATs[site] = a
				}
			}
		}
		if plan.Self {
			s.Applied.Policies = plan.Want.Clone().Policies
		}
	}
	return s.Now, false
}
