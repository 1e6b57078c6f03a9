package lab

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clear removes what earlier tests left on a cluster that exists already: hosts outside, and pods.
func (l *Lab) clear(ctx context.Context) error {
	hosts, err := l.Kin.Hosts(ctx)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if err := l.Kin.DeleteHost(ctx, host); err != nil {
			return err
		}
	}
	pods, err := l.Kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		if err := l.DeletePod(ctx, p.Name); err != nil {
			return err
		}
	}
	return nil
}
