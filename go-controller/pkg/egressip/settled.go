package egressip

// maxSteps is how many plans there are at most until a pod has what it is to have: a
// handful, since each one puts in force what the next one needs.
const maxSteps = 20

// Settled returns the rows that the pod has in the end: it carries out plans until
// nothing is left to be done, with chassis that put in force whatever is waited for. ok
// is false where that has no end.
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
