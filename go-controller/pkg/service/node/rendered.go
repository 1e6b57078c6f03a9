package node

import (
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/bridge"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/service"
)

// rendered remembers the flows of each Service, so that a change renders those of one Service only.
type rendered struct {
	facts bridge.Bridge // on which all of them depend
	byKey map[string]ingressFlows
}

type ingressFlows struct {
	ingress []service.Ingress
	flows   []host.Flow
}

// of returns the flows of a Service, which render returns for each Ingress if they are not known, and
// records them in next.
func (r rendered) of(key string, ingress []service.Ingress, next rendered, render func(service.Ingress) []host.Flow) []host.Flow {
	if len(ingress) == 0 {
		return nil
	}
	has, known := r.byKey[key]
	if !known || r.facts != next.facts || !slices.EqualFunc(has.ingress, ingress, sameIngress) {
		has = ingressFlows{ingress: ingress}
		for _, i := range ingress {
			has.flows = append(has.flows, render(i)...)
		}
	}
	next.byKey[key] = has
	return has.flows
}

func sameIngress(a, b service.Ingress) bool {
	return a.To == b.To && a.Protocol == b.Protocol && a.Closed == b.Closed && slices.Equal(a.Sources, b.Sources)
}
