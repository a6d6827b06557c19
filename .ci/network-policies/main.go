// Enforces the network policies of a one-node cluster: kube-router's controller of them alone, without its routes and services, which take
// most of the time to build.
//
// network-policies KUBECONFIG NODE: until it is ended.
// network-policies cleanup: removes the rules.
package main

import (
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "cleanup" {
		(&netpol.NetworkPolicyController{}).Cleanup()
		return
	}
	if err := enforce(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func enforce(kubeconfig, node string) error {
	settings, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(settings)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	config := options.NewKubeRouterConfig()
	config.HostnameOverride = node
	var ipsets sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &ipsets)
	if err != nil {
		return err
	}
	pods.AddEventHandler(controller.PodEventHandler)
	namespaces.AddEventHandler(controller.NamespaceEventHandler)
	policies.AddEventHandler(controller.NetworkPolicyEventHandler)

	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(heartbeats, stop, &running)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	close(stop)
	running.Wait()
	return nil
}
