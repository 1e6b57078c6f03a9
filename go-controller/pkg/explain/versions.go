package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Version is an image that containers in ovnkube's namespace run.
type Version struct {
	// Container is the name of the containers: "ovnkube-node".
	Container string `json:"container"`
	// Image is the name of the image.
	Image string `json:"image"`
	// ID is the container runtime's identifier of the image; absent if no container runs yet.
	ID string `json:"id,omitempty"`
	// Pods is the number of pods with such a container.
	Pods int `json:"pods"`
}

// versions returns the images of the pods in the namespace of ovnkube; none if ovnkube does not
// run in pods.
func (c *Cluster) versions() []Version {
	counts := map[Version]int{}
	for _, p := range c.snap.Pods {
		if c.snap.System == "" || p.Namespace != c.snap.System || ended(p) {
			continue
		}
		for _, has := range p.Spec.Containers {
			v := Version{Container: has.Name, Image: has.Image}
			for _, s := range p.Status.ContainerStatuses {
				if s.Name == has.Name {
					v.ID = s.ImageID
				}
			}
			counts[v]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Image, b.Image), cmp.Compare(a.ID, b.ID))
	})
	for i, v := range all {
		all[i].Pods = counts[v]
	}
	return all
}

// versionLines writes the versions as text for people.
func versionLines(w io.Writer, all []Version) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONTAINER\tIMAGE\tPODS")
	for _, v := range all {
		fmt.Fprintf(table, "%s\t%s\t%d\n", v.Container, v.Image, v.Pods)
	}
	_ = table.Flush() // a failing writer also fails for the lines below
}
