package main

import (
	"context"
	"os"
	_ "time/tzdata" // CronJob time zones

	etcdmain "go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllersapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
)

func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func apiserver() int         { return cli.Run(apiserverapp.NewAPIServerCommand()) }
func controllerManager() int { return cli.Run(controllersapp.NewControllerManagerCommand()) }
func scheduler() int         { return cli.Run(schedulerapp.NewSchedulerCommand()) }
func kubelet() int           { return cli.Run(kubeletapp.NewKubeletCommand(context.Background())) }

func kubectl() int {
	// kubectl needs its verbosity before it builds its commands, which happens
	// before flags are parsed.
	logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args)) //nolint:errcheck // an unknown level keeps the default
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it as kubectl does and exits
	}
	return 0
}
